"""Completion of `pinion` for bash, zsh and fish, from the parser's table."""

HEADER = "made by packaging/manual/completion.py from the command's parser"


def files_of(kind):
    """How a value or argument of this type is completed: directories, files or nothing."""
    return "d" if kind == "DIR" else "f" if kind.startswith("FILE") or kind == "PROGRAM" else ""


def argument_choices(argument):
    """Also those that stand in the text: "one of: a, b"."""
    if argument["choices"] or not argument["text"].startswith("one of: "):
        return argument["choices"]
    return argument["text"].removeprefix("one of: ").split(", ")


def starting(table):
    """The commands that start a program, whose first word ends the options."""
    return [command for command in table["commands"] if command["starts_program"]]


def valued(command):
    """The options whose value is the next word; a switch takes only `yes` or `no`."""
    return [option["name"] for option in command["options"] if option["type"] and not option["value_optional"]]


def program_of_bash(table):
    """Completes the program's own words, behind `--` or from the first word that no option takes."""
    options = "|".join(f"'{command['name']} {name}'" for command in starting(table) for name in valued(command))
    return [f"  [[ ${{COMP_WORDS[1]}} != @({'|'.join(command['name'] for command in starting(table))}) ]] ||",
            "    for ((i = 2; i < COMP_CWORD; ++i)); do",
            "      if [[ ${COMP_WORDS[i]} == -- || ${COMP_WORDS[i]} != -* ]]; then",
            "        [[ ${COMP_WORDS[i]} != -- ]] || ((++i))",
            "        if declare -F _command_offset >/dev/null; then _command_offset $i; "
            "else COMPREPLY=($(compgen -f -- \"$current\")); fi",
            "        return", "      fi",
            "      if [[ ${COMP_WORDS[i+1]} == = ]]; then ((i += 2)); continue; fi",
            '      case "${COMP_WORDS[1]} ${COMP_WORDS[i]}" in',
            f"        {options}) ((++i)) ;;",
            "        *) [[ ${COMP_WORDS[i+1]} != @(yes|no) ]] || ((++i)) ;;",
            "      esac", "    done"]


def bash(table):
    names = " ".join(command["name"] for command in table["commands"])
    lines = [f"# bash completion of pinion(1); {HEADER}", "_pinion() {",
             "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} i",
             "  COMPREPLY=()",
             "  # bash splits --name=value at the sign.",
             "  [[ $current != = ]] || current=",
             "  [[ $previous != = ]] || previous=${COMP_WORDS[COMP_CWORD-2]}",
             "  if ((COMP_CWORD == 1)); then",
             f"    COMPREPLY=($(compgen -W '{names} --help --version' -- \"$current\"))",
             "    return", "  fi",
             *program_of_bash(table),
             '  case "${COMP_WORDS[1]} $previous" in']
    for command in table["commands"]:
        for option in command["options"]:
            if not option["type"]:
                continue
            pattern = f"'{command['name']} {option['name']}'"
            if option["choices"]:
                reply = f"compgen -W '{' '.join(option['choices'])}'"
            elif files_of(option["type"]):
                reply = f"compgen -{files_of(option['type'])}"
            else:
                reply = "compgen -W ''"
            lines.append(f"    {pattern}) COMPREPLY=($({reply} -- \"$current\")); return ;;")
    lines += ["  esac", "  case ${COMP_WORDS[1]} in"]
    for command in table["commands"]:
        options = " ".join(option["name"] for option in command["options"])
        if command["starts_program"]:
            arguments = 'compgen -c -- "$current"'
        else:
            choices = [choice for argument in command["arguments"] for choice in argument_choices(argument)]
            kinds = "".join(sorted({files_of(argument["name"] if argument["name"] == "PROGRAM" else argument["type"])
                                    for argument in command["arguments"]}))
            arguments = (f"compgen -W '{' '.join(choices)}' -- \"$current\"" if choices else
                         f'compgen -{kinds} -- "$current"' if kinds else "true")
        lines += [f"    {command['name']})",
                  f"      if [[ $current == -* ]]; then COMPREPLY=($(compgen -W '{options}' -- \"$current\"))",
                  f"      else COMPREPLY=($({arguments})); fi ;;"]
    lines += ["  esac", "}", "complete -F _pinion pinion", ""]
    return "\n".join(lines)


def zsh_text(text):
    for old, new in (("\\", ""), ("'", "'\\''"), ("[", "("), ("]", ")"), (":", "\\:"), ("`", "")):
        text = text.replace(old, new)
    return text


def zsh_value(item):
    kind = item["type"].lower() or item["name"]
    choices = argument_choices(item)
    action = (f"({' '.join(choices)})" if choices else
              {"d": "_files -/", "f": "_files", "": ""}[files_of(item["type"] or item["name"])])
    return f"{zsh_text(kind)}:{action}"


def zsh(table):
    lines = ["#compdef pinion", f"# zsh completion of pinion(1); {HEADER}", "_pinion() {", "  local state line",
             "  local -a commands=("]
    lines += [f"    '{command['name']}:{zsh_text(command['text'])}'" for command in table["commands"]]
    lines += ["  )",
              "  _arguments -C '--help[show help]' '--version[show the version]' '1: :->command' '*:: :->rest'",
              "  case $state in", "    command) _describe command commands ;;", "    rest)", "      case $words[1] in"]
    for command in table["commands"]:
        specs = []
        for option in command["options"]:
            value = f":{zsh_value(option)}" if option["type"] else ""
            specs.append(f"'{option['name']}[{zsh_text(option['text'])}]{value}'")
        if command["starts_program"]:
            specs[:0] = ["-A '-*'"]  # no option behind the program's name
            specs.append("'*:: :_normal'")
        else:
            specs += [f"'*:{zsh_value(argument)}'" for argument in command["arguments"]]
        lines.append(f"        {command['name']}) _arguments " + " \\\n          ".join(specs) + " ;;")
    lines += ["      esac ;;", "  esac", "}", '_pinion "$@"', ""]
    return "\n".join(lines)


def fish_text(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish(table):
    names = " ".join(command["name"] for command in table["commands"])
    lines = [f"# fish completion of pinion(1); {HEADER}", "complete -c pinion -f"]
    for command in table["commands"]:
        seen = f"-n '__fish_seen_subcommand_from {command['name']}'"
        lines.append(f"complete -c pinion -n 'not __fish_seen_subcommand_from {names}' -a {command['name']} "
                     f"-d {fish_text(command['text'])}")
        for option in command["options"]:
            value = ""
            if option["type"]:
                value = " -r -F" if files_of(option["type"]) else " -x"
                if option["choices"]:
                    value += f" -a {fish_text(' '.join(option['choices']))}"
            lines.append(f"complete -c pinion {seen} -l {option['name'][2:]}{value} -d {fish_text(option['text'])}")
        for argument in command["arguments"]:
            choices = argument_choices(argument)
            if command["starts_program"]:
                # It takes words such as --limit for its own options up to the first other word.
                words = " ".join(["--fcs-skip=2", "-", *valued(command)])
                lines.append(f"complete -c pinion {seen} -a '(__fish_complete_subcommand {words})'")
            elif choices:
                lines.append(f"complete -c pinion {seen} -a {fish_text(' '.join(choices))}")
            elif files_of(argument["type"] or argument["name"]) or argument["name"] == "PROGRAM":
                lines.append(f"complete -c pinion {seen} -F")
    return "\n".join(lines) + "\n"
