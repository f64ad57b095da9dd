"""A file's bytes are parsed once for all that look at them."""

from tiny_tflite import float_model, int8_model, packed
from wording import fails

from edgeconv.model.tflite import flatbuffer, float_layers, oldest_runtime, summarize
from edgeconv.model.tflite.summary import largest_scales
from edgeconv.types.errors import InputRefused


def test_all_that_look_at_a_file_share_what_was_parsed(monkeypatch):
    parsed: list[bytes] = []
    parse = flatbuffer.parse

    def recording(data: bytes, *, where: str) -> object:
        parsed.append(data)
        return parse(data, where=where)

    monkeypatch.setattr(flatbuffer, "parse", recording)
    flatbuffer._parse_once.cache_clear()
    for data in (packed(float_model()), packed(int8_model())):
        parsed.clear()
        first = summarize(data, where="a.tflite")
        oldest_runtime(data, "a.tflite")
        float_layers(data)
        largest_scales(data)
        # Equal bytes that were read from the file again.
        assert summarize(bytes(bytearray(data)), where="b.tflite") == first
        assert parsed == [data]


def test_a_refusal_names_the_file_that_it_is_of():
    for name in ("a.tflite", "b.tflite"):
        with fails(InputRefused):
            summarize(packed(float_model())[:100], where=name)


def test_a_large_file_is_not_kept(monkeypatch):
    data = packed(float_model())
    monkeypatch.setattr(flatbuffer, "_MOST_BYTES_KEPT", len(data) - 1)
    assert flatbuffer.read(data, where="x") is not flatbuffer.read(data, where="x")
