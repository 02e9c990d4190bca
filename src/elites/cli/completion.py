"""The command `completion`: a script for bash that completes the command line of elites."""

from __future__ import annotations

import contextlib
import io
import re

from elites import tasks
from elites.core import catalogue
from elites.output import say
from elites.tasks import families, standard

# bash splits words at colons, which the names of tasks contain. So the line is split at spaces, and
# the part of a completed name that lies before its last colon is taken away again.
_SCRIPT = r"""_elites() {
    local -A options=(%s)
    local tasks="%s" algorithms="%s" commands="${!options[*]}" words word known
    read -ra words <<< "${COMP_LINE:0:COMP_POINT}"
    [[ "${COMP_LINE:0:COMP_POINT}" == *[[:space:]] ]] && words+=("")
    word="${words[-1]}"
    case "${#words[@]} ${words[1]} $word" in
        2*) known="$commands" ;;
        *" "--*) known="${options[${words[1]}]}" ;;
        "3 train "*|"3 tasks "*) known="$tasks" ;;
        "4 train "*|"3 algorithms "*) known="$algorithms" ;;
    esac
    COMPREPLY=($(compgen -W "$known" -- "$word"))
    [[ ${#COMPREPLY[@]} == 1 && "${COMPREPLY[0]}" == *: ]] && compopt -o nospace 2>/dev/null
    COMPREPLY=("${COMPREPLY[@]#"${word%%"${word##*:}"}"}")
}
complete -o default -F _elites elites"""


def completion() -> None:
    """Print a script that completes commands, options, tasks and algorithms in bash.

    Enter it in the current shell with: eval "$(elites completion)"
    """
    from elites.cli import COMMANDS

    options = " ".join(f'[{name}]="{" ".join(_options(name))}"' for name in COMMANDS)
    simulators = [f"{family}:" for family in families.FAMILIES]
    names = [*tasks.names(), *standard.STANDARD, *simulators]
    say(_SCRIPT % (options, " ".join(names), " ".join(catalogue.ALGORITHMS)))


def _options(command: str) -> list[str]:
    """Return the options of a command, read from its help."""
    from elites.cli import main

    page = io.StringIO()
    with contextlib.redirect_stdout(page), contextlib.suppress(SystemExit):
        main([command, "--help"])
    return list(dict.fromkeys(re.findall(r"--[a-z][\w.-]*", page.getvalue())))
