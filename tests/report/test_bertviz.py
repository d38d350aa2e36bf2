"""The export has BertViz's shapes and order, and loads without running anything."""

import numpy as np
import torch
from made_pages import decoder_page, encoder_decoder_page

from minitf.report.bertviz import bertviz, save_bertviz


def test_a_decoder_only_model():
    example = decoder_page().examples[0]
    found = bertviz(example)
    assert list(found) == ["attention", "tokens"]
    assert [tuple(w.shape) for w in found["attention"]] == [(1, 3, 12, 12)] * 2
    assert found["tokens"] == [f"t{i}" for i in range(12)]
    for layer, weights in enumerate(found["attention"]):
        assert weights.dtype == torch.float32
        np.testing.assert_allclose(weights[0], example.attention[0].weights[layer], atol=1e-7)


def test_an_encoder_decoder_model_from_a_file(tmp_path):
    save_bertviz(tmp_path / "maps.pt", {"one": encoder_decoder_page().examples[0]})
    found = torch.load(tmp_path / "maps.pt", weights_only=True)["one"]
    shapes = {name: [tuple(w.shape) for w in found[name]] for name in found if name.endswith("attention")}
    assert shapes == {
        "encoder_attention": [(1, 3, 9, 9)],
        "decoder_attention": [(1, 2, 5, 5)] * 2,
        "cross_attention": [(1, 2, 5, 9)] * 2,  # rows are the decoder's tokens
    }
    assert found["encoder_tokens"] == [f"s{i}" for i in range(9)]
    assert found["decoder_tokens"] == [f"t{i}" for i in range(5)]


def test_a_view_of_a_large_capture_does_not_bring_all_of_it(tmp_path):
    page = decoder_page(n_examples=1)
    whole = torch.zeros(64, 3, 12, 12)
    a = page.examples[0].attention[0]
    example = type(page.examples[0])("x", (type(a)("self", a.queries, a.keys, [whole[0], whole[1]]),))
    save_bertviz(tmp_path / "maps.pt", {"x": example})
    assert (tmp_path / "maps.pt").stat().st_size < 20_000
