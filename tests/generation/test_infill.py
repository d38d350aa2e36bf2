import parts
import pytest
import torch
from torch import nn

from minitf.errors import ConfigError
from minitf.generation.infill import infill
from minitf.generation.sampling import Greedy, Sample

MASK = 9


class Sure(nn.Module):
    """Says token 1 + place % 4 everywhere, the surer the larger `order` is there; likes the mask and token 0 best."""

    def __init__(self, order):
        super().__init__()
        self.order, self.calls = torch.tensor(order).float(), 0

    def forward(self, ids, pos=None):
        self.calls += 1
        logits = torch.zeros(*ids.shape, 10)
        for place, sure in enumerate(self.order):
            logits[:, place, 1 + place % 4] = sure
        logits[..., MASK] = logits[..., 0] = 50.0
        return logits


def last(states):
    return list(states)[-1].ids


@pytest.mark.parametrize(
    ("n_steps", "expected"),
    [
        (None, [[5], [1], [4], [2]]),
        (1, [[1, 2, 4, 5]]),
        (2, [[1, 5], [2, 4]]),  # 4 cos 45 = 2.8: 2 are left
        (3, [[5], [1], [2, 4]]),  # 3.5 and 2.0: 3 and 2 are left
        (50, [[5], [1], [4], [2]]),  # at least one a step
    ],
)
def test_the_surest_places_come_first(n_steps, expected):
    model = Sure([9, 5, 3, 9, 4, 6])
    ids = torch.tensor([[7, MASK, MASK, 8, MASK, MASK]])
    how = {"mask_id": MASK, "special_ids": [0], "n_steps": n_steps}
    states = list(infill(model, ids, sampler=Greedy(), **how))
    assert [s.fixed[0].nonzero().flatten().tolist() for s in states] == expected
    assert len(states) == model.calls
    before = ids
    for state in states:
        assert torch.equal(state.ids[~state.fixed], before[~state.fixed])
        assert (before[state.fixed] == MASK).all()
        before = state.ids
    assert before.tolist() == [[7, 2, 3, 8, 1, 2]]
    assert ids[0, 1] == MASK  # what was given stays as it was
    probs = torch.stack([s.logprobs for s in states]).sum(0)[0].exp()
    e = torch.tensor([0.0, 5, 3, 0, 4, 6]).exp()
    torch.testing.assert_close(probs, torch.where(ids[0] == MASK, e / (e + 7), 1.0))


def test_equal_places_are_filled_from_the_left():
    states = infill(Sure([3] * 5), torch.full((1, 5), MASK), mask_id=MASK, special_ids=[0], sampler=Greedy())
    assert [s.fixed[0].nonzero().item() for s in states] == [0, 1, 2, 3, 4]


def test_the_mask_and_special_ids_are_never_chosen():
    ids = torch.full((2, 60), MASK)
    for sampler in (Greedy(), Sample(1.0, None, None), Sample(5.0, 3, 0.9)):
        filled = last(infill(Sure([1] * 60), ids, mask_id=MASK, special_ids=[0, 5], n_steps=3, sampler=sampler))
        assert not torch.isin(filled, torch.tensor([MASK, 0, 5])).any()


def bert(*overrides):
    model = parts.model("bert_tiny", *overrides, scale=6)
    with torch.no_grad():
        model.embedding.weight.mul_(8)
    return model


@pytest.mark.parametrize("sampler", [Greedy(), Sample(1.0, 20, 0.9)])
@pytest.mark.parametrize("n_steps", [None, 1, 3])
def test_a_row_is_filled_in_a_batch_as_it_is_alone(sampler, n_steps):
    model, mask_id = bert(), 64
    rows = [torch.randint(60, (n,)) for n in (5, 12, 9)]
    for row, places in zip(rows, ([1, 4], [0, 2, 3, 7, 8, 11], []), strict=True):
        row[places] = mask_id
    how = {"mask_id": mask_id, "special_ids": [63, 62], "n_steps": n_steps, "sampler": sampler}
    alone = [last(infill(model, row[None], seeds=[i], **how))[0] for i, row in enumerate(rows[:2])] + [rows[2]]
    for side in ("left", "right"):
        pos = parts.padded([5, 12, 9], side)
        ids = torch.full(pos.shape, mask_id)
        for row, given in enumerate(rows):
            ids[row, pos[row] >= 0] = given
        states = list(infill(model, ids, pos=pos, seeds=[0, 1, 2], **how))
        assert len(states) == {None: 6, 1: 1, 3: 3}[n_steps]
        for row, expected in enumerate(alone):
            real = pos[row] >= 0
            assert torch.equal(states[-1].ids[row, real], expected)
            assert torch.equal(expected[rows[row] != mask_id], rows[row][rows[row] != mask_id])
            assert (expected < 62).all()
            assert (states[-1].ids[row, ~real] == mask_id).all()


def test_each_step_is_a_plain_pass_of_the_model():
    model, mask_id = bert(), 64
    ids = torch.randint(60, (1, 10))
    ids[0, [2, 5, 6, 9]] = mask_id
    state = ids
    for found in infill(model, ids, mask_id=mask_id, sampler=Greedy()):
        logprobs = model(state)[..., :mask_id].log_softmax(-1)
        best, token = logprobs.masked_fill(state[..., None] != mask_id, float("-inf")).max(-1)
        place = best[0].argmax()
        state = state.index_fill(1, place, token[0, place].item())
        assert torch.equal(found.ids, state)
        torch.testing.assert_close(found.logprobs[0, place], best[0, place])
    assert not (state == mask_id).any()


def test_seeds_decide_and_the_model_stays_as_it_was():
    model, ids = bert("model.dropout=0.5").train(), torch.full((3, 8), 64)
    how = {"mask_id": 64, "sampler": Sample(1.0, None, None)}
    states = infill(model, ids, seeds=[7, 8, 7], **how)
    next(states)
    assert model.training
    assert torch.is_grad_enabled()
    rows = last(states)
    assert torch.equal(rows[0], rows[2])
    assert not torch.equal(rows[0], rows[1])
    assert torch.equal(rows[1:2], last(infill(model, ids[:1], seeds=[8], **how)))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"ids": torch.zeros(1, 3).long()}, r"no place is masked: put the mask id \(9\)"),
        ({"pos": torch.tensor([[0, -1, 1]])}, "no place is masked"),
        ({"n_steps": 0}, "n_steps"),
        ({"n_steps": True}, "n_steps"),
        ({"seeds": [1, 2]}, "1 rows need as many seeds, got 2"),
        ({"seeds": [-1]}, "seeds must be"),
    ],
)
def test_what_cannot_be_filled_is_refused_before_the_first_step(how, message):
    how = {"ids": torch.tensor([[1, MASK, 2]]), **how}
    with pytest.raises(ConfigError, match=message):
        infill(Sure([1] * 3), how.pop("ids"), mask_id=MASK, sampler=Greedy(), **how)


def test_models_that_cannot_fill_are_refused():
    ids, how = torch.tensor([[1, MASK, 2]]), {"mask_id": MASK, "sampler": Greedy()}
    with pytest.raises(ConfigError, match="Decoder reads only what stands before"):
        infill(parts.model("gpt_tiny"), ids, **how)
    for head in ("classify", "tag"):
        with pytest.raises(ConfigError, match="needs model/head=masked_lm"):
            next(infill(bert(f"model/head={head}"), ids, **how))
    with pytest.raises(ConfigError, match="nothing to fill a place with"):
        next(infill(Sure([1] * 3), ids, special_ids=range(9), **how))
    with pytest.raises(ConfigError, match="10 tokens do not fit the learned position table of 8"):
        next(infill(bert("model.max_len=8"), torch.full((1, 10), 64), mask_id=64, sampler=Greedy()))
