"""What happens to memories after they were written: forgetting, and keeping the store sound."""
