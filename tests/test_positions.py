import pytest
import torch

from minitf.positions import SEGMENT, from_real, offset, packed, segment


def test_a_position_holds_document_and_place():
    pos = torch.tensor([[0, 5, 3 * SEGMENT + 7, -1]])
    assert segment(pos).tolist() == [[0, 0, 3, -1]]
    assert offset(pos).tolist() == [[0, 5, 7, 0]]


@pytest.mark.parametrize(
    ("real", "expected"),
    [
        ([1, 1, 1, 0], [0, 1, 2, -1]),
        ([0, 0, 1, 1], [-1, -1, 0, 1]),
        ([0, 0, 0, 0], [-1, -1, -1, -1]),
    ],
)
def test_padding_never_counts(real, expected):
    assert from_real(torch.tensor([real]).bool()).tolist() == [expected]


def test_packed_documents_each_start_at_place_zero():
    pos = packed([2, 3], 6)
    assert segment(pos).tolist() == [0, 0, 1, 1, 1, -1]
    assert offset(pos).tolist() == [0, 1, 0, 1, 2, 0]
    assert pos.dtype == torch.int64
    with pytest.raises(ValueError, match=r"\[4, 3\] tokens do not fit into a row of 6"):
        packed([4, 3], 6)
