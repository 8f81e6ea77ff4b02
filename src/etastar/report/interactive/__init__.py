"""The figures of the page: the same data as the printed ones, drawn by plotly."""
