"""Files that were cut, mixed up or damaged in transit."""

import gzip

from hypothesis import strategies as st

PIECES = (
    *(bytes([each]) for each in b"\"',\n\r\0\t[{}]:\\-*&!\xff"),
    *(b"\\u", b"1e999", b"nan", b"Infinity", b"true", b"null", b"-1", b"1e300", b"1e-300", b"\xef\xbb\xbf"),
    *(b"\xff\xfe", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\x1b[31m"),
    *(b"2024-01-01T00:00:00Z", b"0001-01-01 00:00:00+23:59", b"9999-12-31 23:59:59-23:59", b"9" * 30, b" " * 50),
    *(b"[" * 2000, b'{"a":' * 2000, b"a" * 70_000, b"\n" * 500, b"- " * 200),
)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Return ``content`` with bits flipped, pieces inserted, cut out or doubled, or its end lost."""
    found = bytearray(content)
    how = draw(st.sampled_from(["pieces", "pieces", "bits", "cut", "doubled", "other", "wide"]))
    if how == "cut":
        return bytes(found[: draw(st.integers(0, max(0, len(found) - 1)))])
    if how == "doubled":
        start = draw(st.integers(0, len(found)))
        stop = draw(st.integers(start, min(len(found), start + 4096)))
        return bytes(found[:stop] + found[start:])
    if how == "other":
        return draw(
            st.binary(max_size=300)
            | st.sampled_from([b"", b"PAR1", b"PAR1PAR1", b"\x1f\x8b", gzip.compress(content, mtime=0)[:-3]])
        )
    if how == "wide":
        return content.decode("utf-8", "replace").encode(
            draw(st.sampled_from(["utf-16", "utf-32", "utf-16-be", "cp037"])), "replace"
        )
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(found)))
        if how == "bits" and at < len(found):
            found[at] ^= 1 << draw(st.integers(0, 7))
        else:
            length = draw(st.sampled_from([0, 0, 1, 4, 30]))
            found[at : at + length] = draw(st.sampled_from(PIECES) | st.binary(max_size=4))
    return bytes(found)
