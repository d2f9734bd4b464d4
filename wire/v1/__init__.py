"""Generated from `proto/wire/v1`; `make proto` writes it anew, never a person."""
