"""`office`: six apps, 24 hidden house rules that differ by deployment, and tasks that can be re-drawn at will."""

from evolve.environments.office.environment import Office

MEMBER = Office
