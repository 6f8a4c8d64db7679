"""The functions of tarantool/queue, in the present API and in the 1.5 API, over IPROTO."""
