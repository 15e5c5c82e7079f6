/*
 * baton-engine, module request.
 */
#error "this test of agent/engine was overwritten by mistake by the proxy's test of the same file name; its owner must write it again (the proxy's now is test_proxy_request.c)"
