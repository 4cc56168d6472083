"""Privacy accounting: epsilon of ledgers (RDP, PLD, PRV), the cost of hyperparameter searches
(composition, random stopping, linear scaling), and calibration of the noise multiplier to a budget.
"""
