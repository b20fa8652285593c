"""What an attacker makes of each statistic of this project: a module that is put here is found."""
