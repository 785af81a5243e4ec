"""Markdown, as far as docs/commands.md uses it, as the text of a man page (man(7))."""
import re


def escaped(text):
    """Plain text as roff has it; hyphens stay what a user can paste."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def inline(text):
    """A paragraph's code, links, bold and italic text."""
    spans = []

    def keep(font):
        def replace(match):
            spans.append(f"\\f{font}{escaped(match.group(1)).removeprefix(chr(92) + '&')}\\fR")
            return f"\0{len(spans) - 1}\0"
        return replace

    text = re.sub(r"`([^`]+)`", keep("B"), text)
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\*\*([^*]+)\*\*", keep("B"), text)
    text = re.sub(r"(?<!\w)\*([^*\s][^*]*)\*", keep("I"), text)
    text = re.sub("\0(\\d+)\0", lambda match: spans[int(match.group(1))], escaped(text))
    text = re.sub(r"(?<!\S)(?=\S*_)", r"\\%", text)  # names are never hyphenated
    return "\\&" + text if text[:1] in (".", "'") else text


def code_block(lines):
    return [".PP", ".RS 4", ".EX", *(escaped(line) for line in lines), ".EE", ".RE"]


def table_row(line):
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def tagged(tag, text):
    return [".TP", inline(tag) or "\\&", inline(text) or "\\&"]


def blocks(lines):
    """(kind, lines) of headings, code, tables, list items and paragraphs."""
    kind, block = None, []
    for line in [*lines, ""]:
        item = re.match(r"(- |\d+\. )(.*)", line)
        if kind == "fence":
            if line.startswith("```"):
                yield "code", block
                kind, block = None, []
            else:
                block.append(line)
            continue
        now = ("fence" if line.startswith("```") else "heading" if line.startswith("#") else
               "code" if line.startswith("    ") and kind in (None, "code") else "table" if line.startswith("|") else
               "item" if item else None if not line.strip() else kind if kind in ("item", "paragraph") else "paragraph")
        if kind and (now != kind or item or now == "heading"):
            yield kind, block
            block = []
        kind = now
        if now == "code":
            block.append(line[4:])
        elif now and now != "fence":
            block.append(line)


def from_markdown(text):
    """The lines of a man page's section."""
    out = []
    for kind, lines in blocks(text.splitlines()):
        if kind == "heading":
            out += [f".SS {inline(lines[0].lstrip('# '))}"]
        elif kind == "code":
            out += code_block(lines)
        elif kind == "table":
            for line in lines[2:]:  # after the heads and their rule
                cells = table_row(line)
                out += tagged(cells[0], "; ".join(cell for cell in cells[1:] if cell))
        elif kind == "item":
            mark, rest = re.match(r"(- |\d+\. )(.*)", lines[0]).groups()
            mark = "\\(bu" if mark == "- " else mark.strip()
            out += [f".IP {mark} 4", inline(" ".join([rest, *(line.strip() for line in lines[1:])]))]
        else:
            out += [".PP", inline(" ".join(line.strip() for line in lines))]
    return out


def page(name, section, version, parts):
    """A whole page; `parts`: (heading, lines)."""
    lines = [f'.TH "{escaped(name.upper())}" {section} "" "Pinion {version}" "Pinion"']
    for heading, body in parts:
        lines += [f".SH {heading}", *body]
    return "\n".join(lines) + "\n"
