"""Looks at what training must not see: the true gradient. For public data: nothing here is private.

Its numbers explain the methods. They come from no budget, and no method may use them.
"""
