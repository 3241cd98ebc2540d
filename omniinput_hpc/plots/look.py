"""What a figure says about its runs, and what its user chooses: names, a title, a style.

It belongs to the current context (`contextvars`), which `cli.scripts.run_script` opens for each
command: figures of one command share it, and it ends with the command.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omniinput_hpc.errors import UserError
from omniinput_hpc.text import first_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WITHOUT_TEX: Any = {"text.usetex": False}
"""TeX would read the underscores of file names as formulas."""


@dataclass(frozen=True)
class Caption:
    """A figure's text about its runs, so that the figure can be understood on its own.

    Attributes
    ----------
    title : model, space and rounds, one line per run
    remark : small print below the figure, "" for none
    converged : if false, "NOT CONVERGED" is written across the figure
    """

    title: str = ""
    remark: str = ""
    converged: bool = True


@dataclass(frozen=True)
class Look:
    """The user's choices.

    Attributes
    ----------
    labels : name of each run (or of each group of joined runs) of the figure; empty: by their files
    label_of : the same by the path of a run file
    title : replaces the title above a figure; None: model, space and rounds of each run
    style : matplotlib's settings, on top of this package's own
    """

    labels: tuple[str, ...] = ()
    label_of: Mapping[str, str] = field(default_factory=dict)
    title: str | None = None
    style: Mapping[str, Any] = field(default_factory=dict)

    def named(self, default: str, index: int = 0) -> str:
        """Return the user's name of the `index`-th run of the figure, else `default`."""
        return self.labels[index] if index < len(self.labels) else default

    def colours(self, default: Sequence[str]) -> Sequence[str]:
        """Return the colours of series: the style's, if it has any, else `default`."""
        cycle = self.style.get("axes.prop_cycle")
        return default if cycle is None else cycle.by_key().get("color", default)


_CURRENT: ContextVar[Look] = ContextVar("look")


def current() -> Look:
    """Return the choices for the figures that are drawn now."""
    return _CURRENT.get(Look())


def use(
    groups: Sequence[Sequence[os.PathLike[str] | str]],
    labels: Sequence[str] = (),
    title: str | None = None,
    style: str | None = None,
) -> None:
    """Use these choices for the figures of the current context.

    Parameters
    ----------
    groups : the run files that each label is for: one file, or several joined ones
    labels : none, or one for each group
    title, style : as in `Look`; the style is the path of a style file, or a name that matplotlib
        knows

    Raises
    ------
    UserError
        The number of labels is wrong, or the style does not exist or cannot be read.
    """
    if labels and len(labels) != len(groups):
        raise UserError(
            f"--label: expected one for each run ({len(groups)}; joined files are one run), in "
            f"their order, found {len(labels)}"
        )
    by_file = {
        os.fspath(file): label
        for group, label in zip(groups, labels, strict=bool(labels))
        for file in group
    }
    settings = {} if style is None else read_style(style)
    _CURRENT.set(Look(tuple(labels), by_file, title, settings))


def drawn(
    draw: Callable[[], Figure], label: str | None, title: str | None, style: str | None
) -> Figure:
    """Return a figure of one run.

    Parameters
    ----------
    draw : function that draws it
    label : name of the run in its legend; None: "sampled"
    title : text above it; None for none
    style : matplotlib style, a file or a name; None for none
    """

    def draw_so() -> Figure:
        use([[]], [] if label is None else [label], title, style)
        figure = draw()
        if title is not None:
            figure.suptitle(title, x=0.01, ha="left")
        return figure

    return copy_context().run(draw_so)


def read_style(name: str) -> dict[str, Any]:
    """Return the settings of a style file, or of a style that matplotlib knows by name.

    Raises
    ------
    UserError
        The file or style does not exist, or matplotlib cannot read it.
    """
    import matplotlib as mpl  # takes 0.4 s, which no --help needs
    from matplotlib import style as mpl_style

    if name in mpl_style.library:
        return {**mpl_style.library[name], **WITHOUT_TEX}
    if not os.path.isfile(name):
        known = ", ".join(word for word in mpl_style.available if not word.startswith("_"))
        raise UserError(
            f"--style {name}: this is neither a file nor a style of matplotlib, which has: {known}"
        )
    try:
        found = mpl.rc_params_from_file(name, fail_on_error=True, use_default_template=False)
    except Exception as error:  # matplotlib raises whatever its validators of values raise
        raise UserError(f"--style {name} cannot be read: {first_line(error)}") from None
    if not found:
        raise UserError(f"--style {name} has no setting of matplotlib, as in font.size: 9")
    return {**found, **WITHOUT_TEX}
