"""Program to Program: what is rewritten before anything is planned."""
