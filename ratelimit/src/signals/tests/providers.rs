//! What each of the 25 providers really sends: normal, throttled, and lying.

use std::collections::BTreeMap;

use super::*;

struct Case {
    provider: &'static str,
    what: &'static str,
    call: (&'static str, &'static str),
    status: u16,
    headers: &'static [(&'static str, &'static str)],
    body: &'static str,
    says: &'static str,
}

macro_rules! cases {
    ($($provider:literal $what:literal: $method:literal $path:literal => $status:literal [$($name:literal = $value:literal),* $(,)?] $body:literal => $says:literal;)+) => {
        &[$(Case {
            provider: $provider, what: $what, call: ($method, $path), status: $status,
            headers: &[$(($name, $value)),*], body: $body, says: $says,
        },)+]
    };
}

const CASES: &[Case] = cases! {
    // GitHub: instants in seconds, by resource; secondary limits have no header.
    "github" "normal": "GET" "/user" => 200
        ["x-ratelimit-limit" = "5000", "x-ratelimit-remaining" = "4999", "x-ratelimit-used" = "1", "x-ratelimit-reset" = "1774538100", "x-ratelimit-resource" = "core"] ""
        => "core 4999/5000 900000ms";
    "github" "throttled": "GET" "/user" => 403
        ["x-ratelimit-limit" = "5000", "x-ratelimit-remaining" = "0", "x-ratelimit-reset" = "1774538100", "x-ratelimit-resource" = "core"] r#"{"message":"API rate limit exceeded for user ID 1."}"#
        => "core 0/5000 900000ms; throttle connection core 900000ms Reset";
    "github" "secondary": "POST" "/repos/a/b/issues" => 403
        ["retry-after" = "120", "x-ratelimit-remaining" = "4000", "x-ratelimit-limit" = "5000", "x-ratelimit-resource" = "core"] r#"{"message":"You have exceeded a secondary rate limit. Please wait"}"#
        => "core 4000/5000; throttle connection - 120000ms RetryAfter";
    "github" "secondary without a time": "POST" "/repos/a/b/issues" => 403 [] r#"{"message":"You have exceeded a Secondary Rate Limit"}"#
        => "throttle connection - 60000ms Profile";
    "github" "a refusal of another kind": "GET" "/orgs/x" => 403
        ["x-ratelimit-remaining" = "4000", "x-ratelimit-limit" = "5000", "x-ratelimit-resource" = "core"] r#"{"message":"Must have admin rights"}"#
        => "core 4000/5000";
    "github" "without a credential": "GET" "/users/x" => 403
        ["x-ratelimit-remaining" = "0"] r#"{"message":"API rate limit exceeded for 192.0.2.1. (But here's the good news: Authenticated requests get a higher rate limit.)"}"#
        => "throttle source - 60000ms Profile";
    "github" "lying: a reset a day ahead in a window of an hour": "GET" "/user" => 429
        ["x-ratelimit-limit" = "5000", "x-ratelimit-remaining" = "0", "x-ratelimit-reset" = "1774623600", "x-ratelimit-resource" = "core"] ""
        => "core 0/5000 3600000ms; throttle connection core 3600000ms Reset";
    "github" "lying: headers of another resource": "GET" "/user" => 200
        ["x-ratelimit-limit" = "30", "x-ratelimit-remaining" = "0", "x-ratelimit-reset" = "1774537260", "x-ratelimit-resource" = "search"] ""
        => "";

    // Shopify: a ratio; Retry-After with a fraction; GraphQL says it with 200.
    "shopify" "normal": "GET" "/admin/api/2026-01/products.json" => 200 ["x-shopify-shop-api-call-limit" = "32/40"] "" => "rest 8/40";
    "shopify" "throttled": "GET" "/admin/api/2026-01/products.json" => 429 ["retry-after" = "2.0", "x-shopify-shop-api-call-limit" = "40/40"] ""
        => "rest 0/40; throttle connection rest 2000ms RetryAfter";
    "shopify" "throttled with a success": "POST" "/admin/api/2026-01/graphql.json" => 200 []
        r#"{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"requestedQueryCost":202,"actualQueryCost":null}}}"#
        => "throttle connection graphql 1000ms Profile";
    "shopify" "settled": "POST" "/admin/api/2026-01/graphql.json" => 200 []
        r#"{"data":{"x":{"code":"THROTTLED"}},"extensions":{"cost":{"requestedQueryCost":101,"actualQueryCost":46}}}"#
        => "graphql cost 46";
    "shopify" "lying: more used than there is, and a body of a tenant": "POST" "/admin/api/2026-01/orders.json" => 200
        ["x-shopify-shop-api-call-limit" = "41/40"] r#"{"errors":[{"extensions":{"code":"throttled"}}]}"#
        => "rest 0/40";

    "hubspot" "normal": "GET" "/crm/v3/objects/contacts" => 200
        ["x-hubspot-ratelimit-max" = "100", "x-hubspot-ratelimit-remaining" = "93", "x-hubspot-ratelimit-interval-milliseconds" = "10000", "x-hubspot-ratelimit-daily" = "250000", "x-hubspot-ratelimit-daily-remaining" = "249000"] ""
        => "ten-secondly 93/100; daily 249000/250000";
    "hubspot" "throttled": "GET" "/crm/v3/objects/contacts" => 429 []
        r#"{"status":"error","message":"You have reached your ten_secondly_rolling limit.","errorType":"RATE_LIMIT","policyName":"TEN_SECONDLY_ROLLING"}"#
        => "throttle connection ten-secondly 10000ms Profile";
    "hubspot" "throttled for the day": "GET" "/crm/v3/objects/contacts" => 429 [] r#"{"policyName":"DAILY"}"#
        => "throttle connection daily 900000ms Profile";
    "hubspot" "lying: a policy that nobody knows": "GET" "/crm/v3/objects/contacts" => 429
        ["x-hubspot-ratelimit-max" = "100", "x-hubspot-ratelimit-remaining" = "101"] r#"{"policyName":"{}<script>"}"#
        => "ten-secondly ?/100; throttle connection - unnamed 10000ms Profile";

    "slack" "normal": "POST" "/api/chat.postMessage" => 200 [] r#"{"ok":true}"# => "";
    "slack" "throttled": "POST" "/api/chat.postMessage" => 429 ["retry-after" = "30"] r#"{"ok":false,"error":"ratelimited"}"#
        => "throttle connection - unnamed 30000ms RetryAfter";
    "slack" "throttled with a success": "GET" "/api/users.list" => 200 ["retry-after" = "10"] r#"{"ok":false,"error":"ratelimited"}"#
        => "throttle connection - unnamed 10000ms RetryAfter";
    "slack" "lying: a time with a word": "POST" "/api/chat.postMessage" => 429 ["retry-after" = "30 seconds"] ""
        => "throttle connection - unnamed 30000ms Profile";

    "salesforce" "normal": "GET" "/services/data/v60.0/query" => 200 ["sforce-limit-info" = "api-usage=113/5000000"] "" => "rolling-day 4999887/5000000";
    "salesforce" "throttled": "GET" "/services/data/v60.0/query" => 403 [] r#"[{"message":"TotalRequests Limit exceeded.","errorCode":"REQUEST_LIMIT_EXCEEDED"}]"#
        => "throttle connection rolling-day 60000ms Profile";
    "salesforce" "too many long calls": "GET" "/services/data/v60.0/query" => 403 [] r#"[{"errorCode":"CONCURRENT_REQUESTS_LIMIT_EXCEEDED"}]"#
        => "throttle connection long-calls 5000ms Profile";
    "salesforce" "another refusal": "GET" "/services/data/v60.0/query" => 403 [] r#"[{"errorCode":"INSUFFICIENT_ACCESS"}]"# => "";
    "salesforce" "lying: more used than there is": "GET" "/services/data/v60.0/query" => 200
        ["sforce-limit-info" = "api-usage=15200/15000; per-app-api-usage=17/250(appName=x)"] "" => "rolling-day 0/15000";

    "airtable" "normal": "GET" "/v0/appX/t" => 200 [] "" => "";
    "airtable" "throttled": "GET" "/v0/appX/t" => 429 [] r#"{"errors":[{"error":"RATE_LIMIT_REACHED"}]}"# => "throttle connection - unnamed 30000ms Profile";
    "airtable" "lying: a negative time": "GET" "/v0/appX/t" => 429 ["retry-after" = "-1"] "" => "throttle connection - unnamed 30000ms Profile";

    "zendesk" "normal": "GET" "/api/v2/users.json" => 200
        ["x-rate-limit" = "700", "x-rate-limit-remaining" = "699", "ratelimit-limit" = "700", "ratelimit-remaining" = "699", "ratelimit-reset" = "41"] ""
        => "account 699/700 41000ms";
    "zendesk" "an endpoint's own": "GET" "/api/v2/tickets.json" => 200
        ["zendesk-ratelimit-tickets-index" = "total=100; remaining=99; resets=41"] "" => "tickets-index 99/100 41000ms";
    "zendesk" "throttled": "GET" "/api/v2/users.json" => 429 ["retry-after" = "93", "ratelimit-remaining" = "0", "ratelimit-reset" = "41"] ""
        => "account 0/? 41000ms; throttle connection account 93000ms RetryAfter";
    "zendesk" "lying: a reset of an hour in a window of a minute": "GET" "/api/v2/users.json" => 429 ["ratelimit-remaining" = "0", "ratelimit-reset" = "3600"] ""
        => "account 0/? 60000ms; throttle connection account 60000ms Reset";

    "stripe" "normal": "GET" "/v1/customers" => 200 [] "" => "";
    "stripe" "throttled": "POST" "/v1/charges" => 429 [] r#"{"error":{"code":"rate_limit"}}"# => "throttle connection - unnamed 1000ms Profile";
    "stripe" "an object that is held": "POST" "/v1/charges" => 429 [] r#"{"error":{"code":"lock_timeout"}}"# => "throttle connection - 500ms Profile";
    "stripe" "lying: two times that differ": "POST" "/v1/charges" => 429 ["retry-after" = "5", "retry-after" = "500"] "" => "throttle connection - unnamed 1000ms Profile";

    "google" "normal": "GET" "/gmail/v1/users/me/messages" => 200 [] "" => "";
    "google" "throttled": "GET" "/gmail/v1/users/me/messages" => 403 []
        r#"{"error":{"code":403,"message":"User-rate limit exceeded.  Retry after 2026-03-26T15:00:30.231Z (Mail sending)","errors":[{"domain":"usageLimits","reason":"userRateLimitExceeded"}]}}"#
        => "throttle connection - 30231ms Vendor";
    "google" "the project": "GET" "/gmail/v1/users/me/messages" => 429 [] r#"{"error":{"errors":[{"reason":"rateLimitExceeded"}]}}"#
        => "throttle app - 1000ms Profile";
    "google" "lying: the words without a moment": "GET" "/gmail/v1/users/me/messages" => 403 []
        r#"{"error":{"message":"Retry after lunch","errors":[{"reason":"insufficientPermissions"},{"reason":"userRateLimitExceeded"}]}}"#
        => "throttle connection - 1000ms Profile";

    "notion" "normal": "GET" "/v1/users" => 200 [] "" => "";
    "notion" "throttled": "GET" "/v1/users" => 429 ["retry-after" = "7"] r#"{"code":"rate_limited"}"# => "throttle connection - unnamed 7000ms RetryAfter";
    "notion" "lying: far more than a day": "GET" "/v1/users" => 429 ["retry-after" = "999999999"] "" => "throttle connection - unnamed 93600000ms RetryAfter capped";

    "twilio" "normal": "POST" "/2010-04-01/Accounts/AC1/Messages.json" => 201 ["twilio-concurrent-requests" = "3"] "" => "concurrent ?/? used 3";
    "twilio" "throttled": "POST" "/2010-04-01/Accounts/AC1/Messages.json" => 429 [] r#"{"code":20429,"message":"Too Many Requests"}"#
        => "throttle connection concurrent 1000ms Profile";
    "twilio" "lying: a time that is no number": "POST" "/2010-04-01/Accounts/AC1/Messages.json" => 429 ["retry-after" = "NaN", "twilio-concurrent-requests" = "-1"] r#"{"code":"20429"}"#
        => "throttle connection concurrent 1000ms Profile";

    // Jira: moments to the minute; which limit is in RateLimit-Reason; the draft's fields behind Beta-.
    "jira" "normal": "GET" "/rest/api/3/issue/A-1" => 200
        ["beta-ratelimit-policy" = "\"global-app-quota\";q=65000;w=3600", "beta-ratelimit" = "\"global-app-quota\";r=64000;t=1800"] ""
        => "quota-app 64000/65000 1800000ms";
    "jira" "throttled": "GET" "/rest/api/3/issue/A-1" => 429
        ["ratelimit-reason" = "jira-quota-tenant-based", "x-ratelimit-limit" = "100100", "x-ratelimit-remaining" = "0", "x-ratelimit-reset" = "2026-03-26T15:30Z", "retry-after" = "1780"] ""
        => "quota-site 0/100100 1800000ms; throttle connection quota-site 1780000ms RetryAfter";
    "jira" "throttled by the second": "PUT" "/rest/api/3/issue/A-1" => 429 ["ratelimit-reason" = "jira-burst-based"] ""
        => "throttle connection burst 5000ms Profile";
    "jira" "lying: a time beyond its window, and the policy is gone": "GET" "/rest/api/3/issue/A-1" => 429
        ["beta-ratelimit" = "\"global-app-quota\";r=0;t=9999"] ""
        => "quota-app 0/? 3600000ms; throttle app quota-app 3600000ms Reset";

    "xero" "normal": "GET" "/api.xro/2.0/Invoices" => 200 ["x-minlimit-remaining" = "59", "x-daylimit-remaining" = "4999", "x-appminlimit-remaining" = "9999"] ""
        => "minute 59/?; day 4999/?; app-minute 9999/?";
    "xero" "throttled": "GET" "/api.xro/2.0/Invoices" => 429 ["retry-after" = "66975", "x-rate-limit-problem" = "Day", "x-daylimit-remaining" = "0"] ""
        => "day 0/?; throttle connection day 66975000ms RetryAfter";
    "xero" "throttled in all": "GET" "/api.xro/2.0/Invoices" => 429 ["retry-after" = "12", "x-rate-limit-problem" = "appminute"] ""
        => "throttle app app-minute 12000ms RetryAfter";
    "xero" "lying: a problem that nobody knows": "GET" "/api.xro/2.0/Invoices" => 429 ["x-rate-limit-problem" = "moon", "x-minlimit-remaining" = "sixty"] ""
        => "throttle connection - unnamed 10000ms Profile";

    "quickbooks" "normal": "GET" "/v3/company/1/query" => 200 [] "" => "";
    "quickbooks" "throttled": "GET" "/v3/company/1/query" => 429 [] r#"{"fault":{"error":[{"message":"message=ThrottleExceeded; errorCode=003001; statusCode=429"}]}}"#
        => "throttle connection - unnamed 30000ms Profile";
    "quickbooks" "lying: a time in words": "GET" "/v3/company/1/query" => 429 ["retry-after" = "soon"] "" => "throttle connection - unnamed 30000ms Profile";

    "intercom" "normal": "GET" "/contacts" => 200 ["x-ratelimit-limit" = "1666", "x-ratelimit-remaining" = "1665", "x-ratelimit-reset" = "1774537207"] ""
        => "app-in-workspace 1665/1666 7000ms";
    "intercom" "throttled": "GET" "/contacts" => 429 ["x-ratelimit-limit" = "1666", "x-ratelimit-remaining" = "0", "x-ratelimit-reset" = "1774537210"] ""
        => "app-in-workspace 0/1666 10000ms; throttle connection app-in-workspace 10000ms Reset";
    "intercom" "lying: a reset in seconds from now": "GET" "/contacts" => 429 ["x-ratelimit-remaining" = "0", "x-ratelimit-reset" = "10"] ""
        => "app-in-workspace 0/?; throttle connection app-in-workspace 10000ms Profile";

    "asana" "normal": "GET" "/api/1.0/tasks" => 200 [] "" => "";
    "asana" "throttled": "GET" "/api/1.0/tasks" => 429 ["retry-after" = "34"] "" => "throttle connection - unnamed 34000ms RetryAfter";
    "asana" "lying: at once, as an instant": "GET" "/api/1.0/tasks" => 429 ["retry-after" = "1774537260"] "" => "throttle connection - unnamed 30000ms Profile";

    "amazon-sp-api" "normal": "GET" "/orders/v0/orders" => 200 ["x-amzn-ratelimit-limit" = "0.0167"] "" => "orders ?/1";
    "amazon-sp-api" "throttled": "GET" "/catalog/2022-04-01/items" => 429 ["x-amzn-ratelimit-limit" = "2.0"] r#"{"errors":[{"code":"QuotaExceeded"}]}"#
        => "catalog ?/2; throttle connection - unnamed 2000ms Profile";
    "amazon-sp-api" "lying: a rate below zero": "GET" "/catalog/2022-04-01/items" => 429 ["x-amzn-ratelimit-limit" = "-2.0"] "" => "throttle connection - unnamed 2000ms Profile";

    "meta" "normal": "GET" "/v20.0/me" => 200 ["x-app-usage" = "{\"call_count\":28,\"total_time\":25,\"total_cputime\":9.67}"] ""
        => "app-calls 72/100%; app-cpu 90/100%; app-time 75/100%";
    "meta" "throttled": "GET" "/v20.0/act_1/ads" => 400
        ["x-business-use-case-usage" = "{\"10\":[{\"type\":\"ads_insights\",\"call_count\":100,\"total_cputime\":1,\"total_time\":1,\"estimated_time_to_regain_access\":19}]}"] r#"{"error":{"message":"There have been too many calls","code":80000}}"#
        => "business-calls 0/100%; business-cpu 99/100%; business-time 99/100%; throttle connection business-calls 1140000ms Vendor";
    "meta" "the application": "GET" "/v20.0/me" => 400 [] r#"{"error":{"code":4}}"# => "throttle app app-calls 60000ms Profile";
    "meta" "an ad account": "GET" "/v20.0/act_1" => 200 ["x-ad-account-usage" = "{\"acc_id_util_pct\":100,\"reset_time_duration\":100}"] "" => "ad-account 0/100% 100000ms";
    "meta" "lying: zero minutes, and a code of a tenant": "GET" "/v20.0/me" => 400
        ["x-business-use-case-usage" = "{\"10\":[{\"call_count\":250,\"estimated_time_to_regain_access\":0}]}"] r#"{"code":4,"error":{"code":613,"data":{"code":4}}}"#
        => "business-calls 0/100%; throttle connection - 60000ms Profile";

    "klaviyo" "normal": "GET" "/api/profiles" => 200 ["ratelimit-limit" = "3, 3;w=1, 60;w=60", "ratelimit-remaining" = "2", "ratelimit-reset" = "1"] ""
        => "burst 2/3 1000ms";
    "klaviyo" "throttled": "GET" "/api/profiles" => 429 ["retry-after" = "21"] "" => "throttle connection - unnamed 21000ms RetryAfter";
    "klaviyo" "lying: the longer window's reset": "GET" "/api/profiles" => 429 ["ratelimit-remaining" = "0", "ratelimit-reset" = "58"] ""
        => "burst 0/? 1000ms; throttle connection burst 1000ms Reset";

    "openai" "normal": "POST" "/v1/chat/completions" => 200
        ["x-ratelimit-limit-requests" = "500", "x-ratelimit-remaining-requests" = "499", "x-ratelimit-reset-requests" = "120ms", "x-ratelimit-limit-tokens" = "200000", "x-ratelimit-remaining-tokens" = "199000", "x-ratelimit-reset-tokens" = "6m0s"] r#"{"usage":{"total_tokens":321}}"#
        => "requests 499/500 120ms; tokens 199000/200000 60000ms; tokens cost 321";
    "openai" "throttled": "POST" "/v1/chat/completions" => 429
        ["x-ratelimit-limit-tokens" = "200000", "x-ratelimit-remaining-tokens" = "0", "x-ratelimit-reset-tokens" = "1s"] r#"{"error":{"code":"rate_limit_exceeded"}}"#
        => "tokens 0/200000 1000ms; throttle connection tokens 1000ms Reset";
    "openai" "in milliseconds": "POST" "/v1/chat/completions" => 429 ["retry-after-ms" = "1337"] "" => "throttle connection - unnamed 1337ms RetryAfterMs";
    "openai" "nothing left to pay with": "POST" "/v1/chat/completions" => 429 [] r#"{"error":{"code":"insufficient_quota"}}"# => "throttle connection - 900000ms Profile";
    "openai" "lying: the headers vanished": "POST" "/v1/chat/completions" => 429 ["x-ratelimit-reset-requests" = "6m0"] "" => "throttle connection - unnamed 2000ms Profile";

    "linear" "normal": "POST" "/graphql" => 200
        ["x-ratelimit-requests-limit" = "5000", "x-ratelimit-requests-remaining" = "4999", "x-ratelimit-requests-reset" = "1774540800000", "x-complexity" = "17"] ""
        => "requests 4999/5000 3600000ms; complexity cost 17";
    "linear" "throttled": "POST" "/graphql" => 400
        ["x-ratelimit-complexity-limit" = "250000", "x-ratelimit-complexity-remaining" = "0", "x-ratelimit-complexity-reset" = "1774537500000"] r#"{"errors":[{"message":"Rate limit exceeded","extensions":{"code":"RATELIMITED"}}]}"#
        => "complexity 0/250000 300000ms; throttle connection complexity 300000ms Reset";
    "linear" "another fault": "POST" "/graphql" => 400 [] r#"{"errors":[{"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}"# => "";
    "linear" "lying: a reset in seconds": "POST" "/graphql" => 400 ["x-ratelimit-requests-remaining" = "0", "x-ratelimit-requests-reset" = "1774540800"] r#"{"errors":[{"extensions":{"code":"RATELIMITED"}}]}"#
        => "requests 0/?; throttle connection requests 30000ms Profile";

    "zoom" "normal": "GET" "/v2/users/1" => 200 ["x-ratelimit-category" = "Light", "x-ratelimit-limit" = "30", "x-ratelimit-remaining" = "29"] "" => "light 29/30";
    "zoom" "throttled": "GET" "/v2/report/users" => 429
        ["x-ratelimit-category" = "Heavy", "x-ratelimit-type" = "Daily-limit", "x-ratelimit-limit" = "30000", "x-ratelimit-remaining" = "0", "retry-after" = "2026-03-27T00:00:00Z"] ""
        => "heavy 0/30000; throttle connection heavy-day 32400000ms RetryAfter";
    "zoom" "lying: the day is used up, and the headers are the second's": "POST" "/v2/users/1/meetings" => 429
        ["x-ratelimit-category" = "Light", "x-ratelimit-limit" = "6000", "x-ratelimit-remaining" = "5893"] r#"{"code":429,"message":"You have exceeded the daily rate limit (100) of Meeting Create/Update API requests permitted for this particular user."}"#
        => "light 5893/6000; throttle connection meeting-day 32400000ms Window";

    "discord" "normal": "POST" "/api/v10/channels/1/messages" => 200
        ["x-ratelimit-limit" = "5", "x-ratelimit-remaining" = "4", "x-ratelimit-reset" = "1774537201.25", "x-ratelimit-reset-after" = "1.250", "x-ratelimit-bucket" = "abcd"] ""
        => "route 4/5 1250ms";
    "discord" "throttled": "POST" "/api/v10/channels/1/messages" => 429
        ["retry-after" = "65", "x-ratelimit-scope" = "user", "x-ratelimit-limit" = "10", "x-ratelimit-remaining" = "0", "x-ratelimit-reset-after" = "64.57"] r#"{"message":"You are being rate limited.","retry_after":64.57,"global":false}"#
        => "route 0/10 5000ms; throttle app route 64570ms Vendor";
    "discord" "throttled everywhere": "GET" "/api/v10/gateway" => 429 ["retry-after" = "1", "x-ratelimit-global" = "true"] "" => "throttle app global 1000ms RetryAfter";
    "discord" "version 6, in milliseconds": "GET" "/api/v6/gateway" => 429 ["retry-after" = "6457"] r#"{"retry_after":6457}"# => "throttle connection - unnamed 6457ms Vendor";
    "discord" "lying: a time with an exponent": "GET" "/api/v10/gateway" => 429 ["x-ratelimit-scope" = "shared"] r#"{"retry_after":1e300}"# => "throttle app route 1000ms Profile";

    "microsoft-graph" "normal": "GET" "/v1.0/me/messages" => 200 [] "" => "";
    "microsoft-graph" "throttled": "GET" "/v1.0/me/messages" => 429 ["retry-after" = "10"] r#"{"error":{"code":"TooManyRequests"}}"# => "throttle connection - unnamed 10000ms RetryAfter";
    "microsoft-graph" "busy": "GET" "/v1.0/me/messages" => 503 ["retry-after" = "3"] "" => "throttle connection - unnamed 3000ms RetryAfter";
    "microsoft-graph" "lying: a date without a zone": "GET" "/v1.0/me/messages" => 429 ["retry-after" = "2026-03-26T15:00:30"] "" => "throttle connection - unnamed 10000ms Profile";

    "exact-online" "normal": "GET" "/api/v1/1/crm/Accounts" => 200
        ["x-ratelimit-limit" = "5000", "x-ratelimit-remaining" = "4980", "x-ratelimit-reset" = "1774569600000", "x-ratelimit-minutely-limit" = "60", "x-ratelimit-minutely-remaining" = "49", "x-ratelimit-minutely-reset" = "1774537220000"] ""
        => "minute 49/60 20000ms; day 4980/5000 32400000ms";
    "exact-online" "throttled": "GET" "/api/v1/1/crm/Accounts" => 429
        ["x-ratelimit-minutely-limit" = "60", "x-ratelimit-minutely-remaining" = "0", "x-ratelimit-minutely-reset" = "1774537260000"] ""
        => "minute 0/60 60000ms; throttle connection minute 60000ms Reset";
    "exact-online" "lying: the year 1970": "GET" "/api/v1/1/crm/Accounts" => 429
        ["x-ratelimit-remaining" = "0", "x-ratelimit-reset" = "0", "x-ratelimit-minutely-reset" = "1000000000000"] ""
        => "day 0/?; throttle connection day 60000ms Profile";
};

#[test]
fn each_provider_is_read_as_it_speaks() {
    let mut wrong = Vec::new();
    for case in CASES {
        let manifest = manifest(case.provider);
        let reading = answer(&manifest.quota, case.call, case.status, case.headers, case.body);
        let says = shown(&manifest.quota, &reading);
        if says != case.says {
            wrong.push(format!("{} {}:\n  is     {says}\n  should {}", case.provider, case.what, case.says));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_of_the_25_has_its_three() {
    let mut cases: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in CASES {
        cases.entry(case.provider).or_default().push(case);
    }
    assert_eq!(cases.len(), 25);
    for (provider, cases) in cases {
        let lying = cases.iter().filter(|case| case.what.starts_with("lying")).count();
        let throttled = cases.iter().filter(|case| case.says.contains("throttle ")).count();
        assert!(cases.iter().any(|case| case.what == "normal") && lying > 0 && throttled > 1, "{provider}");
        assert!(!manifest(provider).quota.limits.is_empty(), "{provider}");
    }
}
