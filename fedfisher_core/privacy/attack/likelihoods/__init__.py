"""What an attacker makes of each statistic of this project; every module in this package is found."""
