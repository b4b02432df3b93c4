"""How the notebooks show a figure."""

import io

from matplotlib.figure import Figure


def show(figure: Figure | None, dpi: float = 72, inch_px: float | None = None) -> None:
    """Show a figure beneath the cell, whatever backend matplotlib has; None, where there was nothing to draw, is not.

    Args:
        inch_px: pixels of the page for an inch of the figure's width; None: as many as the image has.
    """
    from IPython.display import Image, display  # of the notebooks extra

    if figure is not None:
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
        width = None if inch_px is None else round(figure.get_figwidth() * inch_px)
        display(Image(buffer.getvalue(), width=width))
