"""``zib serve``: the ledger behind HTTP, and its page. Needs ``pip install 'zib[serve]'``."""
