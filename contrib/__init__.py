"""Research without a result of ours: installed, found by its name, and imported by no package of the core.

A folder is a slot of training (`policies.rl.slots`), a file a member that was built from its paper and tried in no
training of ours; `pyproject.toml` declares it as an entry point. What a training has shown at work moves to the slot's
own folder in `policies/rl/`, and its entry point goes.
"""
