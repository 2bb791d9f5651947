"""The topics of website activity and what is in them.

| topic | key | value (JSON; times in milliseconds, money in cents) |
|---|---|---|
| `activity.page-views` | user | user, time, page, item (null unless the page is an item's) |
| `activity.clicks` | user | user, time, page, item, element |
| `activity.searches` | user | user, time, query, results |
| `activity.orders` | user | user, time, order, items [{item, quantity, price}], total |
| `activity.sessions` | user | user, start, end, views, clicks, searches, orders, revenue, step, items |
| `activity.top-pages` | start of the window | start, end, pages [{page, views}], the most viewed first |
| `activity.funnel` | start of the window | start, end, sessions, viewed, engaged, ordered |
| `activity.also-viewed`, `activity.also-bought` | item | start, end, item, other, count: to be summed |
| `activity.late` | as it came | a record that arrived too late for its window, with headers |
| `activity.dead-letters` | as it came | a record that cannot be read, with headers that say why |

The timestamp of a record is its arrival; `time` is when it happened.
"""

PAGE_VIEWS = "activity.page-views"
CLICKS = "activity.clicks"
SEARCHES = "activity.searches"
ORDERS = "activity.orders"
TOPICS_IN = (PAGE_VIEWS, CLICKS, SEARCHES, ORDERS)

SESSIONS = "activity.sessions"
TOP_PAGES = "activity.top-pages"
FUNNEL = "activity.funnel"
ALSO_VIEWED = "activity.also-viewed"
ALSO_BOUGHT = "activity.also-bought"
LATE = "activity.late"
DEAD_LETTERS = "activity.dead-letters"
TOPICS_OUT = (SESSIONS, TOP_PAGES, FUNNEL, ALSO_VIEWED, ALSO_BOUGHT, LATE, DEAD_LETTERS)
