"""The demo: digits hidden among patches of photographs."""
