"""The loan market of the paper: records, fitted models, prices."""

from zib.cases.loan.market import LoanMarket
from zib.cases.loan.pricing import LoanPricing
from zib.cases.loan.records import LoanRecords
from zib.cases.loan.synthetic import synthetic_loan_records

__all__ = ["LoanMarket", "LoanPricing", "LoanRecords", "synthetic_loan_records"]
