"""The command line: thin, and quick to start because nothing heavy is imported before it is needed."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, NoReturn

import typer

from flash_grpo.commands import lists, media, pictures, planning, rewards, runs
from flash_grpo.commands.base import BAD_INPUT, DONE, FAILED, INTERRUPTED, complain, details, first_line
from flash_grpo.errors import InputError
from flash_grpo.plugins import CommandGroup

app = typer.Typer(
    name="flash-grpo",
    cls=CommandGroup,
    help="Align video diffusion models with your own rewards by Flash-GRPO.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> NoReturn:
    """Entry point: runs the command and turns what went wrong into one sentence and an exit code."""
    _quiet_libraries()
    code: int | str | None = DONE
    try:
        app()
    except SystemExit as stop:
        code = stop.code
    except InputError as error:
        complain(str(error))
        code = BAD_INPUT
    except KeyboardInterrupt:
        complain("interrupted")
        code = INTERRUPTED
    except Exception as error:
        complain(f"{first_line(error)}{details(traceback.format_exc())}")
        code = FAILED
    _end(code)


def _end(code: int | str | None) -> NoReturn:
    """End the process, also one that holds a thread in which a reward hangs: leaving that the usual way may crash."""
    scoring = sys.modules.get("flash_grpo.rewards.scoring")
    if scoring is not None and scoring.hanging():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else FAILED if code else DONE)
    sys.exit(code)


def _quiet_libraries() -> None:
    """Settings that must precede the heavy imports; what the user has set stays."""
    for name, value in {
        "OMP_WAIT_POLICY": "PASSIVE",  # on few cores, threads that spin while waiting slow down those that work
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_VERBOSITY": "error",
        "DIFFUSERS_VERBOSITY": "error",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # no stack traces when another process of the run ends
    }.items():
        os.environ.setdefault(name, value)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("flash-grpo-studio"))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


for _command in (
    runs.train,
    runs.resume,
    runs.control,
    runs.evaluate,
    planning.doctor,
    runs.export,
    media.render,
    media.score,
    media.normalise,
    pictures.compose,
    pictures.contact_sheet,
    media.download,
    media.push,
    planning.plan,
    lists.presets,
    lists.models,
    lists.prompts,
    lists.config,
    planning.schedule,
):
    app.command()(_command)
app.add_typer(rewards.rewards, name="rewards")


if __name__ == "__main__":
    main()
