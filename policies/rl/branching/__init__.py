"""From which turns a rollout is branched. Each file names formula, assumption and source."""
