"""Skills as files of others: Agent Skills folders (both ways), SkillBank JSON and Voyager folders (import)."""
