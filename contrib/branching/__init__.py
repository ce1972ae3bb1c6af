"""From which turns a rollout is branched. Tried in no training of ours yet."""
