"""Every fault. `python tests/mutants` plants them one by one; the tests of each must fail."""

from adam import ADAM
from alone import ALONE
from auto_dog import AUTO_DOG
from books import LEDGER, METHODS, PRICE
from drop_in import DROP_IN
from from_defaults import FROM_DEFAULTS
from laid_over import LAID_OVER
from layer_rules import LAYER_RULES
from linear_scaling import LINEAR_SCALING
from losses import LOSSES
from noise import NOISE, SAMPLING
from one_budget import ONE_BUDGET
from other_plans import OTHER_PLANS
from overlooked_again_floor import OVERLOOKED_AGAIN_FLOOR
from overlooked_again_upper import OVERLOOKED_AGAIN_UPPER
from overlooked_books import OVERLOOKED_BOOKS
from overlooked_drawn import OVERLOOKED_DRAWN
from overlooked_drop_in import OVERLOOKED_DROP_IN
from overlooked_extremes import OVERLOOKED_EXTREMES
from overlooked_figures import OVERLOOKED_FIGURES
from overlooked_floor import OVERLOOKED_FLOOR
from overlooked_guarantee import OVERLOOKED_GUARANTEE
from overlooked_guarantee_anew import OVERLOOKED_GUARANTEE_ANEW
from overlooked_late_books import OVERLOOKED_LATE_BOOKS
from overlooked_late_guarantee import OVERLOOKED_LATE_GUARANTEE
from overlooked_later_ones import OVERLOOKED_LATER_ONES
from overlooked_models import OVERLOOKED_MODELS
from overlooked_numbers_anew import OVERLOOKED_NUMBERS_ANEW
from overlooked_odd_examples import OVERLOOKED_ODD_EXAMPLES
from overlooked_once_more_accounts import OVERLOOKED_ONCE_MORE_ACCOUNTS
from overlooked_once_more_books import OVERLOOKED_ONCE_MORE_BOOKS
from overlooked_once_more_guarantee import OVERLOOKED_ONCE_MORE_GUARANTEE
from overlooked_once_more_numbers import OVERLOOKED_ONCE_MORE_NUMBERS
from overlooked_other_stores import OVERLOOKED_OTHER_STORES
from overlooked_pages import OVERLOOKED_PAGES
from overlooked_store_further import OVERLOOKED_STORE_FURTHER
from overlooked_study_anew import OVERLOOKED_STUDY_ANEW
from overlooked_study_further import OVERLOOKED_STUDY_FURTHER
from overlooked_twins import OVERLOOKED_TWINS
from overlooked_upper import OVERLOOKED_UPPER
from overlooked_values import OVERLOOKED_VALUES
from own_data import OWN_DATA
from own_models import OWN_MODELS
from printed import PRINTED_FAULTS
from reach import REACH
from sensitivity import SENSITIVITY
from slightly import SLIGHTLY

FAULTS = [
    *(*NOISE, *SAMPLING, *SENSITIVITY, *LEDGER, *PRICE, *METHODS),
    *(*REACH, *OTHER_PLANS, *SLIGHTLY, *PRINTED_FAULTS),
    *(
        *ALONE,
        *LAID_OVER,
        *LINEAR_SCALING,
        *LOSSES,
        *ONE_BUDGET,
        *ADAM,
        *AUTO_DOG,
        *FROM_DEFAULTS,
    ),
    *(*OVERLOOKED_GUARANTEE, *OVERLOOKED_BOOKS, *OVERLOOKED_EXTREMES),
    *(*OVERLOOKED_VALUES, *OVERLOOKED_FIGURES, *OVERLOOKED_PAGES, *OVERLOOKED_MODELS),
    *(*OVERLOOKED_UPPER, *OVERLOOKED_AGAIN_UPPER),
    *OVERLOOKED_FLOOR,
    *OVERLOOKED_AGAIN_FLOOR,
    *OVERLOOKED_ONCE_MORE_ACCOUNTS,
    *OVERLOOKED_ONCE_MORE_GUARANTEE,
    *OVERLOOKED_ONCE_MORE_BOOKS,
    *OVERLOOKED_ONCE_MORE_NUMBERS,
    *OVERLOOKED_GUARANTEE_ANEW,
    *OVERLOOKED_NUMBERS_ANEW,
    *OVERLOOKED_STUDY_ANEW,
    *OVERLOOKED_STORE_FURTHER,
    *OVERLOOKED_STUDY_FURTHER,
    *OVERLOOKED_OTHER_STORES,
    *(*DROP_IN, *OVERLOOKED_DROP_IN, *OWN_MODELS, *OWN_DATA, *LAYER_RULES),
    *(*OVERLOOKED_LATER_ONES, *OVERLOOKED_ODD_EXAMPLES),
    *(*OVERLOOKED_LATE_GUARANTEE, *OVERLOOKED_LATE_BOOKS, *OVERLOOKED_DRAWN, *OVERLOOKED_TWINS),
]
