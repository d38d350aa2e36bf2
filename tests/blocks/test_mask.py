import parts
import pytest
import torch

from minitf.blocks.attend import dense
from minitf.blocks.mask import Mask
from minitf.blocks.mask.bigbird import BigBird
from minitf.blocks.mask.block_local import BlockLocal
from minitf.blocks.mask.causal import Causal
from minitf.blocks.mask.closed_diagonal import ClosedDiagonal
from minitf.blocks.mask.combine import All, Any
from minitf.blocks.mask.full import Full
from minitf.blocks.mask.prefix_lm import PrefixLM
from minitf.blocks.mask.sliding_window import SlidingWindow
from minitf.blocks.mask.strided import Strided
from minitf.config import build
from minitf.errors import ConfigError
from minitf.positions import SEGMENT, from_real, packed

EVERY_MASK = parts.options("model/mask")
# small enough for every rule to show on a dozen tokens
SMALL_MASKS = [
    *(Full(), Causal(), SlidingWindow(3), SlidingWindow(2, n_sink=1), PrefixLM(4), ClosedDiagonal(), BlockLocal(3)),
    *(Strided(3), BigBird(2, n_window=3, n_global=1, n_random=1, length=12, seed=0), Causal() & BlockLocal(4)),
    *(Causal() & ClosedDiagonal(), Causal() & BigBird(2, 1, 1, 1, 12, 5), SlidingWindow(2) | Strided(4)),
]


def from_config(name: str) -> Mask:
    return build(parts.node("gpt_tiny", f"model/mask={name}").mask)


def named(mask: Mask) -> str:
    return "-".join(type(m).__name__ for m in getattr(mask, "masks", [mask]))


def square(mask: Mask, n: int) -> torch.Tensor:
    place = torch.arange(n)
    return mask.visible(place[:, None], place[None]).expand(n, n)


def rows(mask: Mask, q_pos: list[int], k_pos: list[int]) -> list[str]:
    seen = dense(mask, torch.tensor([q_pos]), torch.tensor([k_pos]))[0, 0]
    return ["".join(str(int(x)) for x in row) for row in seen]


def test_queries_are_placed_by_position_not_by_row():
    assert rows(Causal(), [3, 4], range(5)) == ["11110", "11111"]
    assert rows(Causal(), [7], range(8)) == ["11111111"]


def test_window_counts_the_query_itself():
    window3 = ["100000", "110000", "111000", "011100", "001110", "000111"]
    assert rows(SlidingWindow(3), range(6), range(6)) == window3
    assert rows(SlidingWindow(1), range(3), range(3)) == ["100", "010", "001"]
    assert rows(SlidingWindow(6), range(6), range(6)) == rows(Causal(), range(6), range(6))
    assert rows(SlidingWindow(2, n_sink=1), range(5), range(5)) == ["10000", "11000", "11100", "10110", "10011"]


def test_each_rule_shows_what_its_picture_shows():
    pictures = {
        PrefixLM(3): ["111000", "111000", "111000", "111100", "111110", "111111"],
        PrefixLM(1): ["100000", "110000", "111000", "111100", "111110", "111111"],
        ClosedDiagonal(): ["111111", "101111", "110111", "111011", "111101", "111110"],
        BlockLocal(4): ["111100", "111100", "111100", "111100", "000011", "000011"],
        BlockLocal(1): ["100000", "010000", "001000", "000100", "000010", "000001"],
        Strided(2): ["100000", "110000", "111000", "011100", "101110", "010111"],
        Strided(3): ["100000", "110000", "111000", "111100", "011110", "001111"],
        BigBird(2, 1, 1, 0, 6, 0): ["111111", "110000", "101100", "101100", "100011", "100011"],
        BigBird(1, 3, 0, 0, 6, 0): ["110000", "111000", "011100", "001110", "000111", "000011"],
        Causal() & BlockLocal(4): ["100000", "110000", "111000", "111100", "000010", "000011"],
        Causal() & ClosedDiagonal(): ["100000", "100000", "110000", "111000", "111100", "111110"],
        SlidingWindow(1) | BlockLocal(2): ["110000", "110000", "001100", "001100", "000011", "000011"],
    }
    for mask, picture in pictures.items():
        assert rows(mask, range(6), range(6)) == picture, named(mask)


def test_strided_is_the_union_of_the_papers_two_sets():
    for stride in (1, 2, 3, 5):
        for i, seen in enumerate(square(Strided(stride), 17)):
            near = set(range(max(0, i - stride), i + 1))
            far = {j for j in range(i + 1) if (i - j) % stride == 0}
            assert set(seen.nonzero()[:, 0].tolist()) == near | far


@pytest.mark.parametrize(("n_window", "n_global", "n_random"), [(1, 0, 2), (3, 2, 1), (5, 5, 3), (3, 0, 0)])
def test_bigbird_is_window_global_and_random_blocks(n_window, n_global, n_random):
    block, length = 4, 50
    mask = BigBird(block, n_window, n_global, n_random, length, seed=3)
    seen = square(mask, length)
    for i in range(length):
        drawn = [int(mask.random_block(torch.tensor(i // block), r)) for r in range(n_random)]
        assert len(set(drawn)) == n_random
        assert all(0 <= b < 13 for b in drawn)
        for j in range(length):
            near = abs(i // block - j // block) <= n_window // 2
            assert seen[i, j] == (near or i < n_global or j < n_global or j // block in drawn)


def test_random_blocks_depend_on_seed_and_query_block_alone():
    def drawn(seed: int, n: int = 64, length: int = 64) -> torch.Tensor:
        return square(BigBird(1, 1, 0, 1, length, seed), n)

    assert torch.equal(drawn(0), drawn(0))
    assert torch.equal(drawn(0, n=20), drawn(0)[:20, :20])
    assert not torch.equal(drawn(0), drawn(1))
    block = BigBird(1, 1, 0, 1, 64, 0).random_block(torch.arange(64 * 100), 0)
    assert block.bincount(minlength=64).float().std() < 2 * 100**0.5  # even: 100 a block, give or take 10
    assert block[:8].tolist() == [0, 39, 24, 5, 49, 18, 40, 51]  # a saved run keeps its mask


REFUSED = {
    SlidingWindow: [(0,), (-1,), (2.5,), (None,), (True,), (2, -1), (2, 0.5), (2, True), (2**63,)],
    PrefixLM: [(0,), (1.5,), ("3",)],
    BlockLocal: [(0,), (False,), (2.0,)],
    Strided: [(0,), (-2,), (None,)],
    BigBird: [
        *((0, 3, 1, 1, 64, 0), (8, 2, 1, 1, 64, 0), (8, 3, -1, 1, 64, 0), (8, 3, 1, 9, 64, 0), (8, 3, 1, 1, 0, 0)),
        *((8, 3, 1, 1, 64, -1), (8, 3, 1, 1.5, 64, 0), (8, 3, True, 1, 64, 0)),
    ],
    All: [([],), ({},), ([Causal(), 3],)],
    Any: [([],)],
}


@pytest.mark.parametrize(("kind", "sizes"), [(kind, s) for kind, many in REFUSED.items() for s in many])
def test_sizes_that_mean_nothing_are_refused(kind, sizes):
    with pytest.raises(ConfigError, match=r"window|n_sink|n_prefix|block|stride|n_|length|seed|combines"):
        kind(*sizes)


@pytest.mark.parametrize("name", EVERY_MASK)
def test_no_mask_shows_padding_or_another_document(name):
    mask = from_config(name)
    pos = packed([3, 2], 6)
    seen = dense(mask, pos[None], pos[None])[0, 0]
    assert seen.dtype == torch.bool
    assert not seen[:, 5].any()
    assert not seen[5].any()
    assert not seen[:3, 3:].any()
    assert not seen[3:, :3].any()
    assert seen[:5, :5].any(-1).all(), "a token that reads nothing"


@pytest.mark.parametrize("mask", SMALL_MASKS, ids=named)
def test_a_packed_row_is_its_documents_one_after_another(mask):
    lengths = [5, 1, 6]
    pos = packed(lengths, 13)
    expected = torch.block_diag(*(square(mask, n).int() for n in lengths), torch.zeros(1, 1).int()).bool()
    assert torch.equal(dense(mask, pos[None], pos[None])[0, 0], expected)


def test_causal_and_packed_is_block_diagonal_causal():
    pos = packed([3, 2], 5)
    seen = dense(Causal(), pos[None], pos[None])[0, 0]
    assert ["".join(str(int(x)) for x in row) for row in seen] == ["10000", "11000", "11100", "00010", "00011"]


@pytest.mark.parametrize("mask", SMALL_MASKS, ids=named)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_moves_nothing(mask, side):
    real = torch.ones(1, 12).bool()
    real[:, slice(0, 4) if side == "left" else slice(8, 12)] = False
    pos = from_real(real)
    seen = dense(mask, pos, pos)[0, 0]
    assert torch.equal(seen[real[0]][:, real[0]], square(mask, 8))
    assert not seen[:, ~real[0]].any()


@pytest.mark.parametrize("mask", SMALL_MASKS, ids=named)
def test_a_rule_is_elementwise(mask):
    # any piece of the picture, in any order and of any row, is that piece of the whole
    whole = square(mask, 12)
    q, k = torch.randperm(12)[:7], torch.randperm(12)[:9]
    assert torch.equal(mask.visible(q[:, None], k[None]).expand(7, 9), whole[q][:, k])
    assert torch.equal(mask.visible(q[:, None] + SEGMENT, k[None] + SEGMENT).expand(7, 9), whole[q][:, k])
    for i, j in [(0, 0), (3, 7), (11, 2)]:
        assert mask.visible(torch.tensor(i), torch.tensor(j)) == whole[i, j]


@pytest.mark.parametrize("name", EVERY_MASK)
def test_the_flags_of_plain_rows_say_what_the_rule_says(name):
    mask = from_config(name)
    for made in (mask, mask & Causal(), Causal() & mask, mask | Causal(), mask & Full(), mask | Full()):
        seen = square(made, 70)
        assert made.plain_causal <= torch.equal(seen, torch.ones(70, 70).tril().bool())
        assert made.plain_full <= bool(seen.all())
        assert made.sees_future == bool(square(made, 200).triu(1).any())


def test_flags_of_combinations():
    both, window, prefix = Full() & Causal(), SlidingWindow(3), PrefixLM(5)
    flags = {
        both: (True, False, False),
        Full() & Full(): (False, True, True),
        Causal() | window: (True, False, False),
        Causal() | Full(): (False, True, True),
        Causal() | prefix: (False, False, True),
        Causal() & window: (False, False, False),
        window | prefix: (False, False, True),
        window & prefix: (False, False, False),
        PrefixLM(1) & Full(): (True, False, False),
        Strided(1): (True, False, False),
    }
    for mask, expected in flags.items():
        assert (mask.plain_causal, mask.plain_full, mask.sees_future) == expected, named(mask)


def test_the_future_is_found_wherever_it_is():
    class Late(Mask):
        probe = 1000

        def rule(self, q_off, k_off):
            return (k_off <= q_off) | ((q_off == 700) & (k_off == 900))

    class Later(Late):
        def rule(self, q_off, k_off):
            return k_off <= q_off + (q_off >= 600)

    assert Late().sees_future
    assert Later().sees_future
    assert not (Late() & Later()).sees_future
    assert not (Late() & Causal()).sees_future
    assert (Late() & PrefixLM(901)).sees_future
    assert not PrefixLM(1).sees_future
    assert PrefixLM(2).sees_future
    assert not BlockLocal(1).sees_future
    assert BlockLocal(100).sees_future
    assert not BigBird(1, 1, 0, 0, 500, 0).sees_future
    assert BigBird(1, 1, 0, 1, 500, 0).sees_future


@pytest.mark.parametrize("mask", [*SMALL_MASKS, BlockLocal(1), BigBird(2, 3, 0, 0, 12, 0)], ids=named)
def test_a_reach_holds_and_is_no_wider_than_what_is_seen(mask):
    seen = square(mask, 40).nonzero()
    furthest = [int((seen[:, 0] - seen[:, 1]).max()), int((seen[:, 1] - seen[:, 0]).max())]
    assert all(bound is None or bound == most for bound, most in zip(mask.reach, furthest, strict=True))
    assert mask.reach != (None, None) or furthest[0] == 39 or furthest[1] == 39


def test_reaches_of_combinations():
    window, local, prefix = SlidingWindow(3), BlockLocal(5), PrefixLM(4)
    assert Causal().reach == SlidingWindow(3, n_sink=1).reach == (None, 0)
    assert (local & Causal()).reach == (4, 0)
    assert (local & prefix).reach == (4, 3)
    assert (local | window).reach == (4, 4)
    assert (local | Causal()).reach == (None, 4)
    assert (window & Full()).reach == (2, 0)
    assert (window | Full()).reach == (None, None)


def test_masks_combine():
    # two windows side by side; a window or the first token
    assert rows(Causal() & SlidingWindow(2), range(4), range(4)) == rows(SlidingWindow(2), range(4), range(4))
    assert rows(SlidingWindow(1) | SlidingWindow(2), range(4), range(4)) == rows(SlidingWindow(2), range(4), range(4))
    assert rows(Full() & Full(), [0], [0, 1, -1]) == ["110"]
    assert rows(Full() | Causal(), [0], [0, 1, -1]) == ["110"]


def test_masks_are_an_algebra_of_sets():
    a, b, c = PrefixLM(4), Strided(3), BlockLocal(5)
    same = [
        (a & b, b & a),
        (a | b, b | a),
        ((a & b) & c, a & (b & c)),
        ((a | b) | c, a | (b | c)),
        (a & (b | c), (a & b) | (a & c)),
        (a | (b & c), (a | b) & (a | c)),
        (a & a, a),
        (a | (a & b), a),
        (a & Full(), a),
        (a | Full(), Full()),
        (All([a, b, c]), a & b & c),
        (Any({"x": a, "y": b, "z": c}), a | b | c),
    ]
    for left, right in same:
        assert torch.equal(square(left, 13), square(right, 13))
    assert (a & b & c).masks == (a, b, c)
    assert len((a & (b | c)).masks) == 2


# --- density and receptive field ---


@pytest.mark.parametrize("mask", SMALL_MASKS, ids=named)
def test_density_is_counted(mask):
    seen = square(mask, 23)
    assert mask.n_visible(23).tolist() == seen.sum(-1).tolist()
    assert mask.density(23) == pytest.approx(seen.float().mean().item())
    assert mask.density_of_causal(23) == pytest.approx(seen.sum().item() / (23 * 24 / 2))


def test_densities_at_length_2048():
    assert Causal().density_of_causal(2048) == 1
    assert Full().density(2048) == 1
    assert SlidingWindow(128).n_visible(2048).max() == 128
    # window * n less the corner of the first rows
    assert SlidingWindow(128).n_visible(2048).sum() == 128 * 2048 - 128 * 127 // 2


@pytest.mark.parametrize("root", [8, 16, 32])
def test_a_strided_row_holds_two_roots_of_the_length(root):
    n = root**2
    counts = Strided(root).n_visible(n)
    assert counts[-1] == counts.max() == 2 * root - 1
    assert Strided(root).receptive_field(n, 1) == 2 * root - 1
    assert Strided(root).receptive_field(n, 2) == n


def test_a_bigbird_row_holds_as_many_keys_at_any_length():
    for n in (512, 1024, 2048):
        mask = BigBird(16, n_window=3, n_global=16, n_random=2, length=n, seed=0)
        assert mask.n_visible(n)[16:].max() == 16 * (3 + 2 + 1)
        assert mask.n_visible(n)[:16].unique().tolist() == [n]  # the global tokens read all
        assert mask.receptive_field(n, 2) == n


@pytest.mark.parametrize(("window", "n", "n_layers"), [(3, 20, 4), (128, 2048, 5), (128, 2048, 40), (1, 9, 3)])
def test_windows_reach_window_minus_one_further_a_layer(window, n, n_layers):
    assert SlidingWindow(window).receptive_field(n, n_layers) == min(n, n_layers * (window - 1) + 1)


@pytest.mark.parametrize("mask", SMALL_MASKS, ids=named)
def test_a_receptive_field_is_a_power_of_the_mask(mask):
    one_layer = square(mask, 12).double() + torch.eye(12)  # the residual path
    for n_layers in (1, 2, 5):
        reach = (torch.linalg.matrix_power(one_layer, n_layers) > 0).sum(-1).tolist()
        assert [mask.receptive_field(12, n_layers, query=i) for i in range(12)] == reach


@pytest.mark.parametrize("wrong", [(0, 1, None), (4, 0, None), (4, 1, 4), (4, 1, -1), (2.5, 1, None)])
def test_a_receptive_field_of_nothing_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"whole number|query"):
        Causal().receptive_field(*wrong)
