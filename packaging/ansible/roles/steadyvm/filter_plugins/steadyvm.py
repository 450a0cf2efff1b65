"""Filters of the role steadyvm: a mapping as TOML, and whether an answer of steadyvm tells of a change."""

import json
import re

from ansible.errors import AnsibleFilterError

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def key(word):
    """A key as TOML writes it."""
    return word if BARE_KEY.fullmatch(word) else json.dumps(word, ensure_ascii=False)


def value(of, where):
    """A value in one line; mappings become inline tables."""
    if isinstance(of, bool):
        return "true" if of else "false"
    if isinstance(of, str):
        # JSON's escapes are TOML's, but for DEL, which JSON leaves as it is.
        return json.dumps(str(of), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(of, (int, float)):
        return repr(of)
    if isinstance(of, dict):
        pairs = (f"{key(word)} = {value(it, f'{where}.{word}')}" for word, it in of.items() if it is not None)
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(of, (list, tuple)):
        return "[" + ", ".join(value(it, where) for it in of) + "]"
    raise AnsibleFilterError(f"steadyvm_toml: {where} is {of!r}; give a text, a number, true, false, a list or a mapping")


def is_tables(of):
    """Whether it is a list of mappings, as vm is."""
    return isinstance(of, list) and bool(of) and all(isinstance(it, dict) for it in of)


def table(head, path, of):
    """The lines of a table: its own keys, then the tables below it."""
    own = [f"{key(word)} = {value(it, f'{path}{word}')}" for word, it in of.items() if it is not None and not isinstance(it, dict)]
    below = [
        table(f"[{path}{key(word)}]", f"{path}{key(word)}.", it) for word, it in of.items() if isinstance(it, dict)
    ]
    lines = ([head] if head and (own or not below) else []) + own
    return "\n".join(["\n".join(lines)] * bool(lines) + below)


def steadyvm_toml(of):
    """A mapping with the keys of steadyvm.toml as that file."""
    if not isinstance(of, dict):
        raise AnsibleFilterError("steadyvm_toml: give a mapping with the keys of steadyvm.toml")
    parts = [table("", "", {word: it for word, it in of.items() if not isinstance(it, dict) and not is_tables(it)})]
    for word, it in of.items():
        if is_tables(it):
            parts += [table(f"[[{key(word)}]]", f"{key(word)}.", element) for element in it]
        elif isinstance(it, dict):
            parts.append(table(f"[{key(word)}]", f"{key(word)}.", it))
    head = "# Written by Ansible's role steadyvm; change the inventory's steadyvm_configuration instead."
    return "\n\n".join([head] + [part for part in parts if part]) + "\n"


def steadyvm_changes(answer):
    """Whether what steadyvm says of an apply, a dry run or an undo is a change."""
    undone = answer.get("taken_back", answer)
    # A dry run lists what would be taken back; an apply counts what was.
    restored = undone.get("restored") if isinstance(undone, dict) else undone
    return bool(answer.get("steps") or restored)


class FilterModule:
    """What Ansible asks for."""

    def filters(self):
        """The filters by name."""
        return {"steadyvm_toml": steadyvm_toml, "steadyvm_changes": steadyvm_changes}
