"""Display of figures in the notebooks."""

import io

from matplotlib.figure import Figure


def show(figure: Figure | None, dpi: float = 72, inch_px: float | None = None) -> None:
    """Show a figure below the notebook's cell with any matplotlib backend; do nothing for None.

    Args:
        inch_px: pixels of the page per inch of the figure's width; None keeps the image's own.
    """
    from IPython.display import Image, display  # in the notebooks extra

    if figure is not None:
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
        width = None if inch_px is None else round(figure.get_figwidth() * inch_px)
        display(Image(buffer.getvalue(), width=width))
