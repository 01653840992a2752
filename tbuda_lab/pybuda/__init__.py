"""The PyBuda API: modules under PyBuda's own names."""
