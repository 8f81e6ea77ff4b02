"""What a study says, for people: figures and tables, and the page around them."""
