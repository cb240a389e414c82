"""Translations in the form that LuCI reads: the texts one after the other, then an index of hashes, sorted, then its offset."""

import re
import struct

MASK = 0xFFFFFFFF


def text_hash(data):
    """SuperFastHash (Paul Hsieh), begun with the length; the bytes at the end are signed."""
    def half(at):
        return data[at] | data[at + 1] << 8

    def signed(at):
        return data[at] - 256 if data[at] > 127 else data[at]

    value, at = len(data), 0
    for _ in range(len(data) // 4):
        value = (value + half(at)) & MASK
        value = (value << 16 ^ half(at + 2) << 11 ^ value) & MASK
        value = (value + (value >> 11)) & MASK
        at += 4
    rest = len(data) % 4
    if rest == 3:
        value = (value + half(at)) & MASK
        value = (value ^ value << 16) & MASK
        value = (value ^ signed(at + 2) << 18) & MASK
        value = (value + (value >> 11)) & MASK
    elif rest == 2:
        value = (value + half(at)) & MASK
        value = (value ^ value << 11) & MASK
        value = (value + (value >> 17)) & MASK
    elif rest == 1:
        value = (value + signed(at)) & MASK
        value = (value ^ value << 10) & MASK
        value = (value + (value >> 1)) & MASK
    for left, right in [(3, 5), (4, 17), (25, 6)]:
        value = (value ^ value << left) & MASK
        value = (value + (value >> right)) & MASK
    return value


def entries(source):
    """The texts of a .po file with their translations. It has no plurals and no contexts."""
    string = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'

    def joined(lines):
        text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', lines))
        return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)

    for text, translation in re.findall(rf"^msgid {string}msgstr {string}", source, re.M):
        yield joined(text), joined(translation)


def of(source):
    """The content of an .lmo file for the text of a .po file. A text that stays as it is has no entry."""
    out, index = b"", []
    for text, translation in entries(source):
        if text and translation and text != translation:
            content = translation.encode()
            # The second field is the number of the plural form, from 1.
            index.append((text_hash(text.encode()), 1, len(out), len(content)))
            out += content + bytes(-len(content) % 4)
    return out + b"".join(struct.pack(">4I", *entry) for entry in sorted(index)) + struct.pack(">I", len(out))
