"""`python -P -m tests.warm.run FOLDER MODULE ARGUMENT...`; only the fork server of a worker starts it."""

from tests.warm.life import main

main()
