"""The only room that decides what leaves the training data, and what that costs."""
