{{ config(materialized='view') }}
select id as invoice_id, account, moment, amount from {{ source('crm', 'invoices') }} where amount is not null
