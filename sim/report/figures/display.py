"""Display of figures in the notebooks."""

import io

from matplotlib.figure import Figure

from mezzotint.figures.save import save_png


def show(figure: Figure | None, dpi: float = 72, inch_px: float | None = None) -> None:
    """Show a figure below the notebook's cell with any matplotlib backend; do nothing for None.

    Args:
        inch_px: pixels of the page per inch of the figure's width; None keeps the image's own.
    """
    from IPython.display import Image, display  # in the notebooks extra

    if figure is not None:
        buffer = io.BytesIO()
        save_png(figure, buffer, dpi)
        width = None if inch_px is None else round(figure.get_figwidth() * inch_px)
        display(Image(buffer.getvalue(), width=width))
