"""The dashboard's HTTP routes: translate, delegate, translate back."""
