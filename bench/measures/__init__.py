"""One module for each question that is measured."""
