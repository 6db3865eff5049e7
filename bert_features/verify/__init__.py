"""Are the numbers right on this device?"""
