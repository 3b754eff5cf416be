"""The pages: a Gradio app of several routes, whose own elements (app/web) speak with the REST API."""
