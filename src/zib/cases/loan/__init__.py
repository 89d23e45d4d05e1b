"""The loan market of the paper: records, fitted models, prices."""

from zib.cases.loan.market import LoanMarket
from zib.cases.loan.pricing import LoanPricing
from zib.cases.loan.records import LoanRecords
from zib.cases.loan.synthetic import synthetic_loan_records
from zib.env.generators import register_id, register_type

__all__ = ["LoanMarket", "LoanPricing", "LoanRecords", "synthetic_loan_records"]

register_type("LoanMarket", LoanMarket)
register_type("LoanPricing", LoanPricing)
register_id("loan-market-v1", LoanMarket)
