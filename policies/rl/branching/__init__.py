"""From which turns a rollout is branched. Each file names formula, assumption and source.

None has been shown at work in a training of ours: what there is comes by entry points alone (`policies.rl.slots`).
"""
