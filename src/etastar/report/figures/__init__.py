"""Every figure and table of the paper, one module each: `data(view)` first, `draw(data)` second."""
