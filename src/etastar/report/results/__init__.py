"""Does the paper hold on this study? Each claim, our figure with its interval, and a verdict."""
