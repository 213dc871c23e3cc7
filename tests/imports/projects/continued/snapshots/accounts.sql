{% snapshot all_columns %}
{{ config(strategy='check', check_cols='all', unique_key='id', target_schema='main', hard_deletes='invalidate', meta={'dd': {'begin': 'before/all_columns.parquet'}}) }}
select id, owner, tier, changed from {{ source('crm', 'accounts') }}
{% endsnapshot %}

{% snapshot owners %}
{{ config(strategy='check', check_cols=['owner'], unique_key='id', target_schema='main', hard_deletes='invalidate', meta={'dd': {'begin': 'before/owners.parquet'}}) }}
select id, owner, tier from {{ source('crm', 'accounts') }}
{% endsnapshot %}

{% snapshot by_time %}
{{ config(strategy='timestamp', updated_at='changed', unique_key='id', target_schema='main', hard_deletes='invalidate', meta={'dd': {'begin': 'before/by_time.parquet'}}) }}
select id, owner, tier, changed from {{ source('crm', 'accounts') }}
{% endsnapshot %}
