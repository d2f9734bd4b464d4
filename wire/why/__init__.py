"""What moved most in a step against the steps before it: `headrace why`, and the dashboard."""
